"""One folder a paper: what it claims beside what we measure."""

# name of a paper -> its package: `paper` and what else is measured are modules in it, each with
# `Setup`, `planned` and `outcome`
BY_NAME: dict[str, str] = {
    "adlro": "trimtab.reproduce.adlro",
    "colocated": "trimtab.reproduce.colocated",
    "hierarchy": "trimtab.reproduce.hierarchy",
    "llm": "trimtab.reproduce.llm",
    "openb": "trimtab.reproduce.openb",
    "rollout": "trimtab.reproduce.rollout",
    "slim": "trimtab.reproduce.slim",
}
