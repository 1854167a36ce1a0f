"""Deployment to a cloud: the command ``mlless-nb deploy`` and those that check it and remove it.

AWS Lambda::

    function_set.txt   the packages that functions import: pinned, with hashes
    packages.py        installs these packages and mlless_nb into a folder, and removes files that functions do not need
    archive.py         zips a folder, with the same bytes for the same files; the digest, and AWS' size limits
    runtime.py         builds the layer from both; its name has the digest of its files
    lithops_lambda.py  Lithops' names of layers and functions, its handler and its metadata of a runtime
    resources.py       the resources of a deployment: names, tags, one sentence each                     pure
    policies.py        the permissions that users and functions need, and no others                      pure
    account.py         the user's account: clients with time limits, identity, quota
    links.py           the network link between functions and Redis, measured by functions
    deployment_request.py  what a deployment is asked for, and the checks before anything is made
    deploying.py       creates the resources and writes the profile that ``backend="aws_lambda"`` reads
    removing.py        removes all resources
    doctor.py          checks the deployment, one line for each check
    verifying.py       trains one small run on the deployment, and reports on it

Kubernetes::

    container_set.txt   the packages that only containers import: pinned, with hashes
    base_layer.py       the lowest layer of the image: this machine's Python and the libraries that it needs
    oci.py              writes folders as a container image (OCI), without Docker
    container.py        the functions' image
    container_check.py  checks image, configuration, cluster and storage, one line for each check

``command.py`` has the subcommands: deploy, remove, doctor, verify, policy, runtime.
"""
