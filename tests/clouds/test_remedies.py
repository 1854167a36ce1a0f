"""Errors of AWS become one line that says what to do."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError, NoCredentialsError

from mlless_nb import remedies


def refused(code: str, message: str = "Refused.") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "CreateFunction")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (NoCredentialsError(), "credentials: boto3 finds no complete ones"),
        (refused("ExpiredTokenException"), "credentials: they have expired: log in again"),
        (refused("InvalidClientTokenId"), "credentials: AWS does not know the access key"),
        (refused("SignatureDoesNotMatch"), "credentials: the secret key does not belong to the access key"),
        (refused("AccessDenied", "not authorized to perform: iam:PassRole on"), "permission: iam:PassRole is denied"),
        (refused("AccessDeniedException"), "permission: lambda:CreateFunction is denied"),
        (
            EndpointConnectionError(endpoint_url="https://x"),
            "network: lambda:CreateFunction got no answer from region 'mars'",
        ),
        (
            ConnectTimeoutError(endpoint_url="https://x"),
            "network: lambda:CreateFunction got no answer from region 'mars'",
        ),
        (refused("PermanentRedirect"), "region: the bucket is not in 'mars'"),
        (refused("TooManyRequestsException"), "AWS is busy: lambda:CreateFunction was put off"),
        (refused("CodeStorageExceededException"), "layer: the account's storage for code"),
        (refused("BucketAlreadyExists"), "bucket: its name is taken by another account"),
        (refused("Other", "Two\nlines."), "lambda:CreateFunction: An error occurred (Other)"),
    ],
)
def test_an_error_is_one_line_with_what_to_do(error: Exception, line: str) -> None:
    told = remedies.line(error, "lambda:CreateFunction", "mars")
    assert told.startswith(line)
    assert "\n" not in told
