"""A synthetic twin of Alibaba's cluster trace of 2018: six tables, any size, known dirt.

write_twin(Path("twin"), machines=200, days=3)            a small one, seconds
write_twin(Path("twin"))                                  the real size: 1.4 billion instances

What it is like, and the published figures beside it, are in alibaba2018/statistics.py and
published.py; what is drawn and how is said in the file that draws it. Use of machines is drawn with
a diurnal shape, not derived from what runs there. Empty ids and unknown numbers are nulls. Of the
jobs of one task, 80 % are independent (task_ and 22 characters).
"""

from trimtab.traces.twin.write import write_twin

__all__ = ["write_twin"]
