"""jupyter_kernel_test, the messaging protocol's own conformance suite, for our kernelspec.

A unittest module: `test_conformance.py` runs it in a process of its own, where the suite finds the kernelspec and the
folders of one test.
"""

import unittest

import jupyter_kernel_test


class Conformance(jupyter_kernel_test.KernelTests):
    """Every check of the suite that is not about a pager or clearing output, which the default policy has not."""

    kernel_name = "rlm"
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    code_generate_error = "raise ValueError('on purpose')"
    code_inspect_sample = "print"
    completion_samples = ({"text": "pri", "matches": {"print"}}, {"text": "isin", "matches": {"isinstance"}})
    complete_code_samples = ("1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n")
    incomplete_code_samples = ("print('''hello", "def f(x):\n  x*2")
    invalid_code_samples = ("import = 7q",)
    code_execute_result = (
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
    )
    code_display_data = ({"code": "display('shown')", "mime": "text/plain"},)
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "range", "search")


if __name__ == "__main__":
    unittest.main()
