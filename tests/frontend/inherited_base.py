"""The base class of a trainer in another module. `HERE` has another value there."""

HERE = 2


def shift(obs):
    return obs + HERE


class Base:
    def start(self, msrl):
        obs = msrl.env_reset()
        return shift(obs) + HERE
