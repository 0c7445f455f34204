"""What was measured of a case, and the verdict."""

from dataclasses import asdict, dataclass, field
from statistics import median

# The client at work keeps this part of its rate.
KEEPS = 0.8
# Its p99 stays under this, and a newcomer is served within that; nobody at work waits longer for one operation either.
P99_MS = 20
SERVED_S = 1.0
# Leaks: resident KiB that an allocator may keep, descriptors and threads.
RSS_KIB = 16 * 1024
SLACK = 2


def rates(periods, every, seconds):
    """Of each period; a client that waits to be connected says nothing, and has done nothing."""
    each = [period["operations"] / every for period in periods]
    return each + [0.0] * (int(seconds / every) - 1 - len(each))


def quantile_ms(periods, part):
    """Of the times of all operations of these periods together."""
    times = sorted((micros, count) for period in periods for micros, count in period["times_us"])
    left = part * sum(count for _, count in times)
    for micros, count in times:
        left -= count
        if left <= 0:
            return micros / 1000
    return 0.0


def longest_ms(periods):
    """Of an operation that ended, or still waited."""
    return max((max(period["max_us"], period["waiting_us"]) for period in periods), default=0) / 1000


@dataclass
class Phase:
    """The client at work and the newcomers, for some seconds."""

    rate: float = 0.0
    p99_ms: float = 0.0
    longest_ms: float = 0.0
    newcomer_s: float = 0.0
    newcomers: int = 0

    @staticmethod
    def of(periods, every, seconds, times, strict):
        """Strictly the rate is all operations by the time; else the median of the periods, which one pause of the machine does not change."""
        each = rates(periods, every, seconds)
        rate = sum(each) / len(each) if strict else median(each)
        longest = longest_ms(periods) if periods else seconds * 1000
        return Phase(rate, quantile_ms(periods, 0.99), longest, max(times, default=0.0), len(times))


    def or_worse(self, other):
        """Of two phases what a machine did worst."""
        longest, newcomer = max(self.longest_ms, other.longest_ms), max(self.newcomer_s, other.newcomer_s)
        p99, count = max(self.p99_ms, other.p99_ms), self.newcomers + other.newcomers
        return Phase(min(self.rate, other.rate), p99, longest, newcomer, count)


@dataclass
class Case:
    """A server, a port, an abuse."""

    server: str
    port: str
    abuse: str
    before: Phase = field(default_factory=Phase)
    during: Phase = field(default_factory=Phase)
    facts_before: tuple = (0, 0, 0)
    facts_after: tuple = (0, 0, 0)
    peers: dict = field(default_factory=dict)
    # Seconds until all places were to be had again; None: nobody looked.
    places_s: float | None = None
    faults: list = field(default_factory=list)

    @property
    def name(self):
        return f"{self.server}/{self.port}/{self.abuse}"

    def is_slower(self):
        """Did the client at work notice something?"""
        return self.during.rate < KEEPS * self.before.rate or self.during.p99_ms > P99_MS

    def judge(self, strict, places_before=None):
        """Fills `faults`. Beside others on its machine a case is compared with what was measured just before: bounds are wider by that."""
        before, during = self.before, self.during
        spare = 0 if strict else 1
        bounds = [
            (during.rate >= KEEPS * before.rate and before.rate > 0, f"rate {during.rate:.0f}/s after {before.rate:.0f}/s"),
            (during.p99_ms <= max(P99_MS, spare * 2 * before.p99_ms), f"p99 {during.p99_ms:.1f} ms after {before.p99_ms:.1f} ms"),
            (during.longest_ms <= 1000 * SERVED_S + spare * before.longest_ms, f"an operation took {during.longest_ms:.0f} ms"),
            (during.newcomers > 0, "no newcomer was served"),
            (during.newcomer_s <= SERVED_S + spare * before.newcomer_s, served(during.newcomer_s)),
        ]
        if self.places_s is not None:
            bounds.append((self.places_s <= 2 + (places_before or 0), f"places were back after {self.places_s:.1f} s"))
        self.faults += [words for holds, words in bounds if not holds]
        self.judge_facts()

    def judge_facts(self):
        """What the server has, beside what it had."""
        names, slacks = ["KiB resident", "descriptors", "threads"], [RSS_KIB, SLACK, SLACK]
        for what, slack, then, now in zip(names, slacks, self.facts_before, self.facts_after):
            if now > then + slack:
                self.faults.append(f"{now} {what} after {then}")

    def row(self):
        before, during = self.before, self.during
        pairs = [f"{then}>{now}" for then, now in zip(self.facts_before, self.facts_after)]
        newcomer = "never" if during.newcomer_s == float("inf") else f"{during.newcomer_s * 1000:.0f}"
        return [
            self.server,
            self.port,
            self.abuse,
            f"{before.rate:.0f}>{during.rate:.0f}",
            f"{before.p99_ms:.1f}>{during.p99_ms:.1f}",
            f"{during.longest_ms:.0f}",
            f"{before.newcomer_s * 1000:.0f}>{newcomer}",
            *pairs,
            "ok" if not self.faults else "FAILED",
        ]

    def record(self):
        """For JSON, which has no infinity."""
        facts = asdict(self)
        for phase in (facts["before"], facts["during"]):
            if phase["newcomer_s"] == float("inf"):
                phase["newcomer_s"] = None
        return facts | {"passed": not self.faults}


HEAD = ["server", "port", "abuse", "rate /s", "p99 ms", "longest ms", "newcomer ms", "RSS KiB", "fds", "threads", "verdict"]


def served(seconds):
    return "a newcomer was not served" if seconds == float("inf") else f"a newcomer was served after {seconds:.2f} s"


def table(cases):
    rows = [HEAD] + [case.row() for case in cases]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)
