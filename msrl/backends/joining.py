"""What is said to those who cannot join a Ray cluster."""

from msrl.errors import UsageError


def cannot_join(address: str, problem: Exception, token: bool) -> UsageError:
    """`token`: was it that the cluster asks for one?"""
    if not token:
        return UsageError(f"There is no Ray cluster at {address}.", why=str(problem).strip(),
                          instead="Start one with `ray start --head`, or leave the address out.")
    return UsageError(
        f"The Ray cluster at {address} asks for a token.",
        why="Whoever reaches a cluster can run code in it, so it lets in those who know its token; this process has "
            "none, or another.",
        instead="Set what the cluster was started with: RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE.",
        docs="docs/distributions.md#ray")
