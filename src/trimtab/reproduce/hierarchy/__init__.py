"""Hierarchical multi-agent orchestration (hierarchy-hmarl): Tables 1 and 2 beside ours."""
