"""An error of AWS or of the way to it, in one line that says what to do."""

from __future__ import annotations

import os
import re

#: What to do about a right that is missing.
POLICY = "`mlless-nb policy aws` prints what an administrator has to allow"
#: The same in a function, which has a role of its own.
ROLE = "`mlless-nb deploy aws` makes the functions' role again"
#: Codes by what they mean.
EXPIRED = ("ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired")
UNKNOWN_KEY = ("InvalidClientTokenId", "UnrecognizedClientException", "InvalidAccessKeyId", "AuthFailure")
WRONG_SECRET = ("SignatureDoesNotMatch", "InvalidSignatureException", "IncompleteSignature")
DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403")
ELSEWHERE = ("PermanentRedirect", "IllegalLocationConstraintException", "AuthorizationHeaderMalformed", "301")
_ACTION = re.compile(r"perform:? ([a-z0-9]+:[A-Za-z]+)")


def line(error: BaseException, doing: str, region: str = "") -> str:
    """``error`` of boto3 in one line.

    Parameters
    ----------
    error : Exception
    doing : str
        The action that failed, as IAM calls it: "lambda:CreateFunction".
    region : str
    """
    return known(error, doing, region) or f"{doing}: {' '.join(str(error).split()) or type(error).__name__}"


def known(error: BaseException, doing: str = "", region: str = "") -> str:
    """As `line`, but "" for an error that nothing is known of; ``doing`` may be left to the error."""
    name, text = type(error).__name__, " ".join(str(error).split())
    doing = doing or str(getattr(error, "operation_name", "a request"))
    response = getattr(error, "response", None)
    code = str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""
    if name in ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound"):
        return f"credentials: boto3 finds no complete ones ({text}): run `aws configure`, or set AWS_PROFILE"
    if code in EXPIRED or name in ("TokenRetrievalError", "SSOTokenLoadError", "UnauthorizedSSOTokenError"):
        return "credentials: they have expired: log in again (`aws sso login`), or set new ones"
    if code in UNKNOWN_KEY:
        return "credentials: AWS does not know the access key: run `aws configure` with a key that is active"
    if code in WRONG_SECRET:
        return "credentials: the secret key does not belong to the access key: run `aws configure` again"
    if code in DENIED:
        action = match[1] if (match := _ACTION.search(text)) else doing
        return f"permission: {action} is denied: {ROLE if 'AWS_LAMBDA_FUNCTION_NAME' in os.environ else POLICY}"
    if name == "NoRegionError" or name == "InvalidRegionError":
        return "region: none is set, or it is none: give --region, e.g. --region us-east-1, or set AWS_DEFAULT_REGION"
    if name in ("EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError"):
        return f"network: {doing} got no answer from region {region!r}: is that its name, and is there a network?"
    if code in ELSEWHERE:
        return f"region: the bucket is not in {region!r}: give the --region in which it was deployed"
    if code == "BucketAlreadyExists":
        return "bucket: its name is taken by another account: remove that one, or use another account"
    if code in ("TooManyRequestsException", "Throttling", "ThrottlingException", "SlowDown"):
        return f"AWS is busy: {doing} was put off too often: try again in a minute"
    if code == "CodeStorageExceededException":
        return "layer: the account's storage for code (75 GB) is full: remove layers and functions that nobody needs"
    return ""
