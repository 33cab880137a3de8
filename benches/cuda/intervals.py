"""How sure figures are: 95 % intervals by the percentile bootstrap.

Requests are resampled within their round. A request is resampled whole: the token gaps of one answer are alike, and to
resample each for itself would make intervals too narrow. What a resampling comes to needs no list of resampled values.
A quantile is the value at some rank, and the resampled rank of a fixed value is a sum of independent draws, so normal:
its standard error follows from how many values of each request lie above the quantile. A resampled quantile is then the
value at the rank that a normal number says. The interval of one quantile is the limit for many resamplings; those of
ratios and differences of two come from 1,000 seeded ones. Equal on every machine, and quick for any number of values.

Two systems serve the same requests at the same times of a round. So they are resampled together: where the one has a burst of requests
drawn, the other has, too, and what both have in common says nothing of their ratio. Then the two ranks are correlated normals; how far
follows from how many values of the *same* request lie above both quantiles. Where a system has left requests of a round unserved, or the rounds
are others, each is drawn for itself.

What happens once in a round, such as best-effort work per second, is resampled by rounds.
"""

import random

RESAMPLINGS = 1000
Z = 1.959964  # of 95 %


class Sample:
    """Values by rounds. Each round is a list of units, which are resampled whole: lists of values. `names` tells rounds apart:
    in those of the same name the same requests are served."""

    def __init__(self, rounds, names=()):
        self.names = [name for name, units in zip(names, rounds) if units]
        self.rounds = [units for units in rounds if units]
        self.values = sorted(value for units in self.rounds for unit in units for value in unit)
        self.errors = {}

    def __len__(self):
        return len(self.values)

    def at(self, share):
        """The value that `share` (0..1) of the values do not exceed; the least or greatest beyond them."""
        return self.values[min(len(self.values) - 1, max(0, int(len(self.values) * share)))]

    def error(self, share):
        """Standard error of the share of values that lie below a quantile. Never less than for independent values: that
        few are seen above a far quantile does not make it certain."""
        if share not in self.errors:
            total = sum(count**2 for count in self.above(share))
            n = len(self.values)
            self.errors[share] = max(total / n**2, share * (1 - share) / n) ** 0.5
        return self.errors[share]

    def above(self, share):
        """How many values of each request lie above a quantile, less the mean of its round."""
        limit, found = self.at(share), []
        for units in self.rounds:
            above = [sum(value > limit for value in unit) for unit in units]
            mean = sum(above) / len(above)
            found += [count - mean for count in above]
        return found

    def together(self, other, share):
        """Correlation of the resampled ranks of a quantile here and there: 0 unless the same requests are served."""
        served = [(sample.names, [len(units) for units in sample.rounds]) for sample in (self, other)]
        if not self.names or served[0] != served[1]:
            return 0.0
        both = sum(a * b for a, b in zip(self.above(share), other.above(share)))
        found = both / (len(self.values) * len(other.values) * self.error(share) * other.error(share))
        # Of samples that go together wholly it is beyond 1 by rounding.
        return max(-1.0, min(1.0, found))

    def interval(self, share):
        """A quantile and the interval around it."""
        reach = Z * self.error(share)
        return self.at(share), self.at(share - reach), self.at(share + reach)

    def resampled(self, share, normals):
        error = self.error(share)
        return [self.at(share + normal * error) for normal in normals]


def middle(values):
    """Least and greatest of the 95 % in the middle."""
    values = sorted(values)
    cut = int(0.025 * len(values))
    return values[cut], values[-1 - cut]


def compared(one, other, share, how):
    """`how(a, b)` of a quantile of two samples, with its interval."""
    draw, common = random.Random(0), one.together(other, share)
    mine, theirs = ([draw.gauss(0, 1) for _ in range(RESAMPLINGS)] for _ in range(2))
    theirs = [common * a + (1 - common**2) ** 0.5 * b for a, b in zip(mine, theirs)]
    pairs = zip(one.resampled(share, mine), other.resampled(share, theirs))
    return how(one.at(share), other.at(share)), *middle([how(a, b) for a, b in pairs])


def ratio(one, other, share):
    return compared(one, other, share, lambda a, b: a / b)


def difference(one, other, share):
    return compared(one, other, share, lambda a, b: a - b)


def of_rounds(rounds, figures):
    """Figures that follow from rounds, with their intervals: name -> value, low, high. `figures(rounds)` gives name ->
    value for those that can be told. Of a single round nothing can be said: low and high are None then."""
    rounds, draw = list(rounds), random.Random(0)
    found = figures(rounds)
    if len(rounds) < 2:
        return {name: (value, None, None) for name, value in found.items()}
    again = [figures(draw.choices(rounds, k=len(rounds))) for _ in range(RESAMPLINGS)]
    return {name: (value, *middle([one[name] for one in again])) for name, value in found.items()}
