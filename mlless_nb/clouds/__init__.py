"""What lies in a cloud for runs of mlless_nb, built on the user's machine.

::

    function_set.txt   the packages that functions import: pinned, with hashes
    packages.py        those packages and our own into a folder, for the functions' platform, without what they do not need
    archive.py         a folder into a zip: the same files give the same bytes; its digest, and AWS' limits of size
    runtime.py         both together: the layer of a runtime, named by what is in it
"""
