"""The bucket of a deployment on AWS, looked for before Lithops is opened.

Lithops would make a bucket of that name if it is gone, without the tag by which `mlless-nb remove` knows it.
"""

from __future__ import annotations

from ... import remedies
from ...errors import JobError, ServiceError
from .deployed import Profile

#: Longest wait for a connection and for an answer, seconds, and tries: AWS is silent for less than 20 s.
CONNECT_S, ANSWER_S, TRIES = 5.0, 5.0, 3


def require_bucket(profile: Profile) -> None:
    """Look whether the bucket of ``profile`` is there, in the region of the functions.

    Raises
    ------
    JobError
        If it is not.
    ServiceError
        If AWS does not say: one line with the remedy.
    """
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
    except ModuleNotFoundError:
        return  # Lithops needs it, too, and what installs it is told then
    retries = {"mode": "standard", "total_max_attempts": TRIES}
    limits = Config(connect_timeout=CONNECT_S, read_timeout=ANSWER_S, retries=retries)
    valid = "deployed again (mlless-nb deploy aws): "
    try:
        client = boto3.Session(region_name=profile.region).client("s3", config=limits)
        place = client.get_bucket_location(Bucket=profile.bucket).get("LocationConstraint") or "us-east-1"
    except (BotoCoreError, ClientError) as error:
        response = getattr(error, "response", None) or {}
        if response.get("Error", {}).get("Code") == "NoSuchBucket":
            raise JobError("backend", "aws_lambda", f"{valid}its bucket {profile.bucket} is gone") from None
        raise ServiceError(remedies.line(error, "s3:GetBucketLocation", profile.region)) from None
    if place != profile.region:
        raise JobError(
            "backend", "aws_lambda", f"{valid}its bucket is in {place}, and its functions are in {profile.region}"
        )
