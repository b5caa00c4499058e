"""The hierarchy: a load encoder, a manager of regions and workers that place (hierarchy-hmarl)."""
