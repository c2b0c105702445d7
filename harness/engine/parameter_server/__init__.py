"""A parameter server: it holds the model on a node of its own, trainers pull it and push to it.

As in Gupta et al. (2021), pushes may be sparse, and pulls are the whole model: 4 n bytes come down
for each, however little goes up. At a density of 5 % a step moves 4.4 n bytes instead of 8 n,
which bounds what compression can gain, and the server's own link carries what all trainers pull.
`pull_every` divides it. Nothing overlaps: a thread pulls, computes, compresses and pushes.
"""
