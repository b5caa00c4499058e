"""What FGD's authors published: GPU allocation in percent at 130 % of arrivals, mean of ten orders.

hkust-adsl/kubernetes-scheduler-simulator@8f3d641, experiments/analysis/expected_results,
analysis_allo_discrete.csv, seeds 42 to 51.
"""

from __future__ import annotations

COLUMNS = ("random", "dotprod", "clustering", "packing", "bestfit", "fgd")
ALLOCATION = {
    "default": (87.470, 90.849, 91.878, 92.002, 93.076, 95.391),
    "cpu050": (91.243, 93.267, 93.787, 93.717, 93.794, 95.206),
    "cpu100": (89.113, 91.955, 92.643, 92.715, 93.443, 95.354),
    "cpu200": (83.770, 87.704, 89.921, 90.225, 92.400, 95.045),
    "cpu250": (80.415, 83.805, 87.990, 88.280, 91.446, 93.411),
    "gpushare100": (79.443, 82.417, 82.647, 82.568, 85.006, 86.901),
    "gpushare40": (86.002, 89.559, 90.015, 90.030, 91.689, 94.148),
    "gpushare60": (83.653, 87.115, 87.203, 87.447, 89.359, 91.401),
    "gpushare80": (81.223, 84.486, 84.848, 84.998, 87.007, 89.305),
    "gpuspec10": (87.428, 90.390, 92.177, 92.459, 93.305, 94.949),
    "gpuspec20": (87.240, 89.967, 92.245, 92.936, 93.297, 94.837),
    "gpuspec25": (86.936, 89.634, 92.080, 92.983, 93.231, 94.741),
    "gpuspec33": (86.456, 89.144, 92.117, 93.220, 93.093, 94.547),
    "multigpu20": (88.691, 92.062, 93.557, 93.710, 93.933, 95.651),
    "multigpu30": (89.266, 93.281, 94.722, 94.873, 94.719, 96.456),
    "multigpu40": (90.091, 94.194, 95.504, 95.741, 95.235, 96.990),
    "multigpu50": (90.275, 94.850, 95.811, 96.182, 95.738, 97.178),
}


def published(list_: str, policy: str, load: float) -> float | None:
    """The published mean, or None where there is none."""
    if load != 1.3 or policy not in COLUMNS or list_ not in ALLOCATION:
        return None
    return ALLOCATION[list_][COLUMNS.index(policy)]
