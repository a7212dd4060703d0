"""A trainer whose helper stands in another module."""

from tests.frontend.inherited_base import Base

HERE = 1


class Inherits(Base):
    def train(self, msrl):
        x = self.start(msrl)
        x += HERE
        msrl.report(x=x)
