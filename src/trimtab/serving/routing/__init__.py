"""Which server takes a request at which widths: rules, learned routers, a simulated fleet."""
