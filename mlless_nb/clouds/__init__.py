"""What lies in a cloud for runs of mlless_nb, and the command that puts it there, checks and removes it.

::

    function_set.txt   the packages that functions import: pinned, with hashes
    packages.py        those packages and our own into a folder, for the platform of functions, less what they need not
    archive.py         a folder into a zip: the same files give the same bytes; its digest, and AWS' limits of size
    runtime.py         both together: the layer of a runtime, named by what is in it
    lithops_lambda.py  Lithops' names for layers and functions, its handler and what it notes of a runtime
    resources.py       what a deployment consists of: names, tags, one sentence each                       pure
    policies.py        the permissions that users and functions need, no others                            pure
    remedies.py        an error of AWS in one line, with what to do                                        pure
    account.py         the user's account: clients with deadlines, who it is, its quota
    links.py           the functions' link to Redis, measured by them
    wanted.py          what a deployment is asked for, and checks before anything is made
    deploying.py       makes the resources and writes the profile (`driver.deployed`) that backend="aws_lambda" uses
    removing.py        removes all of it
    doctor.py          checks all of it, a line for each check
    verifying.py       one small run on a deployment, and a report of it
    container_set.txt  the packages that containers import beside those: pinned, with hashes
    base_layer.py      this machine's Python and its libraries: what an image lies on
    oci.py             folders as an image of containers, a file that was written without Docker
    container.py       the functions' image for Kubernetes
    container_check.py checks image, configuration, cluster and storage, a line for each check
    command.py         ``mlless-nb deploy | remove | doctor | verify | policy | runtime``
"""
