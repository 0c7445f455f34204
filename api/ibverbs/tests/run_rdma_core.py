"""Runs rdma-core's tests on the device remora0, and compares what skips with the list of reasons.

A line of the list is 'leave out' or 'skip', a pattern of test names, and the reason, separated by ' | '.
"""

import fnmatch
import os
import sys
import unittest


def rows(path):
    for line in open(path, encoding="utf-8"):
        line = line.strip()
        if line and not line.startswith("#"):
            verb, pattern, reason = (part.strip() for part in line.split(" | "))
            yield verb, pattern, reason


def tests_of(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests_of(test)
        else:
            yield test


def tell_address(base, address):
    """Tells the tests of rdma_cm the device's address, which they look for at a network interface in /sys."""
    if not os.path.exists("/sys/class/infiniband/remora0/device/net"):
        base.RDMACMBaseTest._get_ip_mac = lambda test, dev, port, index: test.args.append(
            [dev, port, index, address, "00:00:00:00:00:00"]
        )


def main():
    listed, wanted = list(rows(sys.argv[1])), sys.argv[2:]
    sys.argv[1:] = ["--dev", "remora0"]
    from args_parser import parser

    parser.parse_args()
    import tests
    import tests.base

    tell_address(tests.base, os.environ.get("REMORA_ADDRESS", "127.0.0.1"))
    suite, left_out = unittest.TestSuite(), []
    for test in tests_of(unittest.defaultTestLoader.loadTestsFromModule(tests)):
        name = test.id()
        if wanted and not any(word in name for word in wanted):
            continue
        if any(verb == "leave out" and fnmatch.fnmatchcase(name, pattern) for verb, pattern, _ in listed):
            left_out.append(name)
        else:
            suite.addTest(test)
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=1).run(suite)

    faults, used = [], set()
    for test, reason in result.skipped:
        rows_of_it = [row for row in listed if row[0] == "skip" and fnmatch.fnmatchcase(test.id(), row[1])]
        used.update(rows_of_it)
        if not rows_of_it:
            faults.append(f"{test.id()} skips and is not listed: {reason}")
    for name in left_out:
        used.update(row for row in listed if row[0] == "leave out" and fnmatch.fnmatchcase(name, row[1]))
    if not wanted:
        faults += [f"no test is any more: {' | '.join(row)}" for row in listed if row not in used]
    for fault in faults:
        print(fault)
    failed = len(result.failures) + len(result.errors)
    passed = result.testsRun - failed - len(result.skipped)
    print(f"{passed} passed, {failed} failed, {len(result.skipped)} skipped, {len(left_out)} left out")
    sys.exit(1 if failed or faults else 0)


main()
