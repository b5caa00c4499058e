"""What steps, memory and energy cost: constants, cases, kernels, links, and laws over them."""
