"""A Ray cluster of two nodes on this machine, on the loopback address alone, without a dashboard."""

import os
from contextlib import contextmanager

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # what it turns off is the search for another address

MEMORY = 80_000_000  # bytes of a node's object store; 75 MB is the least that Ray allows


@contextmanager
def local_cluster(n_nodes: int = 2):
    """Start nodes with two slots each, each node in its own processes, and connect; stop them all at the end."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    try:
        for number in range(n_nodes):
            head = {"include_dashboard": False} if number == 0 else {}
            cluster.add_node(num_cpus=2, object_store_memory=MEMORY, node_ip_address="127.0.0.1", **head)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
