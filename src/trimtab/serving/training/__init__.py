"""How the network and the learned routers that ship are trained."""
