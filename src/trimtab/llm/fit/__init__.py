"""Constants fitted to measured tables, and predictions beside real runs."""
