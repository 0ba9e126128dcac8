"""The tuning job on dask.distributed: compiling on any worker, measuring on those with a GPU, records on the client.

    tasks       what runs on a worker: compile a batch, screen a candidate, hold finals
    connection  the client: which workers there are, calls that outlive a lost worker or scheduler
    builder     core.build.builder.Builder whose batches are compiled by workers
    measurer    core.tuner.ports.Measurer of one worker's GPU
    job         puts a TuningJob together for each kind of GPU, and brings GPUs that come later
    serve       `python -m core.cluster`: a scheduler, and a host's workers
    simulate    `python -m core.cluster.simulate`: how far it scales

The package `distributed` (extra `cluster`) is needed by all but `simulate`. Whoever can reach a scheduler can run code
on its workers: all listens on the loopback interface unless told otherwise; an SSH tunnel leads there from elsewhere.
"""
