"""The permissions that a deployment on AWS needs, as policies of IAM: no action more than is called."""

from __future__ import annotations

from typing import Any

from .resources import LOGS


def user_policy(account: str = "*", region: str = "*") -> dict[str, Any]:
    """What the user needs who deploys, trains and removes: only on what is named as ours, by `resources`.

    Parameters
    ----------
    account, region : str
        "*" for any.
    """
    there = f"{region}:{account}"
    functions = f"arn:aws:lambda:{there}:function:mlless-*"
    layers = f"arn:aws:lambda:{there}:layer:lithops_v*_mlless-*"
    role = f"arn:aws:iam::{account}:role/mlless-nb-function-*"
    lambdas = ("CreateFunction", "GetFunction", "DeleteFunction", "InvokeFunction", "TagResource", "ListTags")
    events = ("PutFunctionEventInvokeConfig", "GetFunctionEventInvokeConfig")
    buckets = (
        "CreateBucket",
        "DeleteBucket",
        "ListBucket",
        "GetBucketLocation",
        "GetBucketTagging",
        "PutBucketTagging",
    )
    objects = ("GetObject", "PutObject", "DeleteObject", "AbortMultipartUpload")
    roles = ("CreateRole", "GetRole", "DeleteRole", "TagRole")
    own = ("PutRolePolicy", "GetRolePolicy", "DeleteRolePolicy")
    groups = ("CreateLogGroup", "PutRetentionPolicy", "DeleteLogGroup", "TagResource")
    return _document(
        _allow("Account", ["sts:GetCallerIdentity", "lambda:GetAccountSettings"], "*"),
        # AWS can restrict lists to no resource.
        _allow("Lists", ["lambda:ListFunctions", "lambda:ListLayers", "logs:DescribeLogGroups"], "*"),
        _allow("Functions", [f"lambda:{each}" for each in (*lambdas, *events)], functions),
        _allow("Layers", [f"lambda:{each}LayerVersion" for each in ("Publish", "Delete")], layers, f"{layers}:*"),
        _allow("UseLayers", ["lambda:GetLayerVersion", "lambda:ListLayerVersions"], layers, f"{layers}:*"),
        _allow(
            "Bucket", [f"s3:{each}" for each in (*buckets, "PutBucketPublicAccessBlock")], "arn:aws:s3:::mlless-nb-*"
        ),
        _allow("Objects", [f"s3:{each}" for each in objects], "arn:aws:s3:::mlless-nb-*/*"),
        _allow("Role", [f"iam:{each}" for each in (*roles, *own)], role),
        _allow("PassRole", ["iam:PassRole"], role)
        | {"Condition": {"StringEquals": {"iam:PassedToService": "lambda.amazonaws.com"}}},
        _allow("Logs", [f"logs:{each}" for each in groups], f"arn:aws:logs:{there}:log-group:{LOGS}mlless-*"),
        # Of jobs with store="dynamodb".
        _allow("Tables", [f"dynamodb:{each}Table" for each in ("Create", "Describe", "Delete")], tables(account)),
    )


def function_policy(account: str, region: str, bucket: str) -> dict[str, Any]:
    """What functions need: the objects of the bucket, their log, tables of updates, and to invoke their successors."""
    there = f"{region}:{account}"
    return _document(
        _allow("Bucket", ["s3:ListBucket"], f"arn:aws:s3:::{bucket}"),
        _allow("Objects", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], f"arn:aws:s3:::{bucket}/*"),
        _allow("Successors", ["lambda:InvokeFunction"], f"arn:aws:lambda:{there}:function:mlless-*"),
        _allow("Logs", ["logs:CreateLogStream", "logs:PutLogEvents"], f"arn:aws:logs:{there}:log-group:{LOGS}mlless-*"),
        # Of jobs with store="dynamodb"; the last supervisor drops the table if the notebook is gone.
        _allow(
            "Tables",
            [f"dynamodb:{each}" for each in ("BatchGetItem", "BatchWriteItem", "DeleteTable")],
            tables(account),
        ),
    )


def tables(account: str) -> str:
    """The tables of runs, in any region: a job may name another one than that of the functions."""
    return f"arn:aws:dynamodb:*:{account}:table/mlless-*"


def trust_policy() -> dict[str, Any]:
    """Who may take on the functions' role: AWS Lambda."""
    return _document({"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"})


def _document(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _allow(name: str, actions: list[str], *resources: str) -> dict[str, Any]:
    where = resources[0] if len(resources) == 1 else list(resources)
    return {"Sid": name, "Effect": "Allow", "Action": actions, "Resource": where}
