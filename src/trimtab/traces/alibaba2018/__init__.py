"""Alibaba's cluster trace of 2018: its six tables, as published or in part."""
