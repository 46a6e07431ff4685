"""Configuration of ReFrame for the tests beside: this machine, and its Slurm's default partition. Who has a configuration uses that instead."""

site_configuration = {
    "systems": [
        {
            "name": "cairn",
            "descr": "any machine",
            "hostnames": [".*"],
            "partitions": [
                {"name": "here", "scheduler": "local", "launcher": "local", "environs": ["builtin"], "max_jobs": 1},
                {"name": "slurm", "scheduler": "squeue", "launcher": "srun", "environs": ["builtin"], "max_jobs": 8},
            ],
        }
    ],
    "environments": [{"name": "builtin"}],
}
