"""Where functions run: this machine, AWS Lambda, Kubernetes; started and stopped through Lithops.

::

    launcher.py          starts and kills functions through Lithops, and opens its object storage
    lithops_config.py    the part of Lithops' configuration that functions get
    lithops_paths.py     the files that Lithops creates on this machine
    interpreter.py       the Python interpreter of local functions
    processes.py         processes of this machine: those that are left, and their ends

    cloud_functions.py   deploys, counts and invokes functions on a cloud; uses deliveries.py and pods.py
    deployed.py          the profile that ``mlless-nb deploy`` wrote
    bucket.py            AWS: whether the bucket of the deployment is there
    deliveries.py        AWS Lambda: an invocation that is not accepted in time is an error
    pods.py              Kubernetes: pods that cannot start are an error
    pod_states.py        Kubernetes: why a pod does not run, or has failed
    cluster_rights.py    Kubernetes: checks the user's rights
    causes.py            finds out why functions are late or lost
    call_failures.py     reads Lithops' records of failed calls
"""
