"""Published formats and exports of schedulers as columns, a file a format."""
