"""How the functions that shared test vectors name are computed by what runs: (file, function) -> a call of it.

Most vectors call a function of the method's module by its own name and need nothing here. The others call a verb of the
method on a batch, a draft or a state that is built from the arguments; such a call renames and reshapes, and leaves the
formula to the package.
"""

from __future__ import annotations

from tests.vectors import april_model, counts, estimates, losses, searches
from tests.vectors.calls import CALLS
from tests.vectors.without_code import WITHOUT_CODE

__all__ = ["CALLS", "WITHOUT_CODE", "april_model", "counts", "estimates", "losses", "searches"]
