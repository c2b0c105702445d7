"""A parameter server, on a node of its own, from which trainers pull weights and push gradients.

As in Gupta et al. (2021), pushes may be sparse, and a pull is the whole model, 4 n bytes. At a
density of 5 % a step moves 4.4 n bytes instead of 8 n, which bounds the gain of compression. The
server's own link carries the pulls of all trainers. Nothing overlaps: a thread pulls, computes,
compresses and pushes. A run ends with the first trainer that dies.
"""
