"""run.py RESULTS FOLDER DEVICE MODULE...: runs modules of rdma-core's pyverbs tests, which lie in FOLDER, on a device.

RESULTS gets two lines for each test, "NAME run" as it begins and then "NAME pass", "NAME skip" or "NAME fail", with tabs
between the fields and the reason in a third one. A test of more than LIMIT ends the program, with a traceback.
What the tests choose at random is the same each time.
"""
import faulthandler
import random
import sys
import types
import unittest

LIMIT = 150  # seconds, on a loaded machine

results, folder, device = sys.argv[1:4]
modules = sys.argv[4:]


class Lines(unittest.TestResult):
    def __init__(self, out):
        super().__init__()
        self.out = out

    def say(self, test, status, reason=""):
        name = test.id().removeprefix("tests.")
        print(name, status, " ".join(str(reason).split()), sep="\t", file=self.out, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.say(test, "run")
        random.seed(test.id())
        faulthandler.dump_traceback_later(LIMIT, exit=True)

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        super().stopTest(test)

    def addSuccess(self, test):
        self.say(test, "pass")

    def addSkip(self, test, reason):
        self.say(test, "skip", reason)

    def addFailure(self, test, err):
        self.say(test, "fail", err[1])

    def addError(self, test, err):
        self.say(test, "fail", "%s: %s" % (err[0].__name__, err[1]))

    def addSubTest(self, test, subtest, err):
        if err:
            self.addError(test, err)


# The tests' own package loads all modules, also those that need what is not installed.
package = types.ModuleType("tests")
package.__path__ = [folder]
sys.modules["tests"] = package
sys.path.insert(0, folder)
sys.argv[1:] = ["--dev", device]
from args_parser import parser  # noqa: E402, one of the folder's

parser.parse_args()
import tests.utils  # noqa: E402, F401: it and mlx5_base need each other, and only this order works

suite = unittest.TestLoader().loadTestsFromNames(["tests." + m for m in modules])
with open(results, "w") as out:
    suite.run(Lines(out))
