"""What goes wrong with a network; apart, so that nothing of Linux is needed to know it."""


class NetworkError(RuntimeError):
    """The kernel refused something; the message names the attempt and the object."""
