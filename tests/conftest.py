"""Configure hypothesis: fixed examples in continuous integration, new ones on a developer's machine.

No test fails because a machine is busy: there is no deadline, and slow generation of examples is no error.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("developer", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("developer"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "developer")
