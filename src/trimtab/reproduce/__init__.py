"""One file for each thing that a paper claims: what it says beside what we measure."""

# name of a paper -> the module whose `Setup`, `planned` and `outcome` measure what it says
BY_NAME: dict[str, str] = {
    "adlro": "trimtab.reproduce.adlro",
    "llm": "trimtab.reproduce.llm",
    "slim": "trimtab.reproduce.slim",
}
