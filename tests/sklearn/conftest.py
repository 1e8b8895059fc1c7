import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Problems are small: threads would only wait for each other."""
    with threadpool_limits(1):
        yield
