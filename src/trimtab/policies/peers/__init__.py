"""The seven methods that hierarchy-hmarl is compared with (its Table 1), each in its essential form
on one engine: docs/policies/peers.md says what each paper has and what was changed.
"""
