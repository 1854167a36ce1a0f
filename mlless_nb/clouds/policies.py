"""The permissions that a deployment on AWS needs, as policies of IAM: no action more than is called."""

from __future__ import annotations

from typing import Any

from .resources import LOGS


def user_policy(account: str = "*", region: str = "*", partition: str = "aws") -> dict[str, Any]:
    """What the user needs who deploys, trains and removes: only on what is named as ours, by `resources`.

    Parameters
    ----------
    account, region : str
        "*" for any.
    partition : str
        The part of AWS, see `partition_of`.
    """
    there, arn = f"{region}:{account}", f"arn:{partition}"
    functions = f"{arn}:lambda:{there}:function:mlless-*"
    layers = f"{arn}:lambda:{there}:layer:lithops_v*_mlless-*"
    role = f"{arn}:iam::{account}:role/mlless-nb-function-*"
    lists = ("lambda:ListFunctions", "lambda:ListLayers")
    lambdas = ("CreateFunction", "GetFunction", "DeleteFunction", "InvokeFunction", "TagResource")
    events = ("PutFunctionEventInvokeConfig", "GetFunctionEventInvokeConfig")
    buckets = (
        "CreateBucket",
        "DeleteBucket",
        "ListBucket",
        "GetBucketLocation",
        "GetBucketTagging",
        "PutBucketTagging",
    )
    objects = ("GetObject", "PutObject", "DeleteObject")
    roles = ("CreateRole", "GetRole", "DeleteRole", "TagRole")
    own = ("PutRolePolicy", "GetRolePolicy", "DeleteRolePolicy")
    groups = ("CreateLogGroup", "PutRetentionPolicy", "DeleteLogGroup", "TagResource")
    of_tables = ("CreateTable", "DescribeTable", "DeleteTable", "TagResource", "ListTagsOfResource")
    return _document(
        _allow("Account", ["sts:GetCallerIdentity", "lambda:GetAccountSettings"], "*"),
        # AWS can restrict lists to no resource.
        _allow("Lists", [*lists, "logs:DescribeLogGroups", "dynamodb:ListTables"], "*"),
        _allow("Functions", [f"lambda:{each}" for each in (*lambdas, *events)], functions),
        _allow("Layers", [f"lambda:{each}LayerVersion" for each in ("Publish", "Delete")], layers, f"{layers}:*"),
        _allow("UseLayers", ["lambda:GetLayerVersion", "lambda:ListLayerVersions"], layers, f"{layers}:*"),
        _allow(
            "Bucket", [f"s3:{each}" for each in (*buckets, "PutBucketPublicAccessBlock")], f"{arn}:s3:::mlless-nb-*"
        ),
        _allow("Objects", [f"s3:{each}" for each in objects], f"{arn}:s3:::mlless-nb-*/*"),
        _allow("Role", [f"iam:{each}" for each in (*roles, *own)], role),
        _allow("PassRole", ["iam:PassRole"], role)
        | {"Condition": {"StringEquals": {"iam:PassedToService": "lambda.amazonaws.com"}}},
        _allow("Logs", [f"logs:{each}" for each in groups], f"{arn}:logs:{there}:log-group:{LOGS}mlless-*"),
        # Of jobs with store="dynamodb".
        _allow("Tables", [f"dynamodb:{each}" for each in of_tables], tables(account, partition)),
    )


def function_policy(account: str, region: str, bucket: str, partition: str = "aws") -> dict[str, Any]:
    """What functions need: the objects of the bucket, their log, tables of updates, and to invoke their successors."""
    there, arn = f"{region}:{account}", f"arn:{partition}"
    return _document(
        _allow("Bucket", ["s3:ListBucket"], f"{arn}:s3:::{bucket}"),
        _allow("Objects", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], f"{arn}:s3:::{bucket}/*"),
        _allow("Successors", ["lambda:InvokeFunction"], f"{arn}:lambda:{there}:function:mlless-*"),
        _allow("Logs", ["logs:CreateLogStream", "logs:PutLogEvents"], f"{arn}:logs:{there}:log-group:{LOGS}mlless-*"),
        # Of jobs with store="dynamodb"; the last supervisor drops the table if the notebook is gone.
        _allow(
            "Tables",
            [f"dynamodb:{each}" for each in ("BatchGetItem", "BatchWriteItem", "DeleteTable")],
            tables(account, partition),
        ),
    )


def tables(account: str, partition: str) -> str:
    """The tables of runs, in any region: a job may name another one than that of the functions."""
    return f"arn:{partition}:dynamodb:*:{account}:table/mlless-*"


def partition_of(region: str) -> str:
    """The part of AWS that ``region`` is of, which has accounts of its own: the second word of every ARN."""
    parts = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
    return next((name for start, name in parts.items() if region.startswith(start)), "aws")


def trust_policy() -> dict[str, Any]:
    """Who may take on the functions' role: AWS Lambda."""
    return _document({"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"})


def _document(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _allow(name: str, actions: list[str], *resources: str) -> dict[str, Any]:
    where = resources[0] if len(resources) == 1 else list(resources)
    return {"Sid": name, "Effect": "Allow", "Action": actions, "Resource": where}
