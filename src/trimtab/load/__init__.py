"""Load of a cluster over time: samples in, features of fixed windows out, in batch or live."""
