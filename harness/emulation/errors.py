"""Errors of networks, apart from code that needs Linux."""


class NetworkError(RuntimeError):
    """Error of a request that the kernel refused. The message names the attempt and the object."""
