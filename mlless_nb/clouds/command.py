"""``mlless-nb``: deploys to a cloud, checks it, and removes it again.

::

    mlless-nb policy aws [--region R]
    mlless-nb deploy aws [--region R] [--memory MB]... [--redis URL|none] [--redis-for-functions URL] [--wheel FILE]
                         [--dry-run]
    mlless-nb doctor [--insecure]
    mlless-nb verify aws [--memory MB] [--report FILE]
    mlless-nb remove aws [--region R] [--dry-run] [--yes]
    mlless-nb runtime build k8s --image NAME [--output FILE] [--wheel FILE]
    mlless-nb runtime check [--config FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ..bus.urls import mask_url
from ..driver.backends import deployed
from ..errors import MllessError
from ..plurals import count
from . import container, container_check, deploying, deployment_request, doctor, removing, runtime, verifying
from .account import open_account
from .policies import partition_of, user_policy

#: Memory of the functions of a deployment that names none, MB: that of jobs, and one with a whole core.
MEMORY_MB = (1024, 1769)


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out ``arguments``, by default the command line's; returns the exit status.

    A mistake or a refusal of the cloud is one line on the standard error, and status 1.
    """
    return carry_out(parser().parse_args(arguments))


def carry_out(given: argparse.Namespace) -> int:
    """Carry out what was ``given``; see `main`."""
    try:
        return int(given.act(given))
    except MllessError as error:
        print(error, file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted; `mlless-nb remove aws` removes what was made", file=sys.stderr)
    return 1


def deploy(given: argparse.Namespace) -> int:
    """``deploy aws``: check, build, make, and write the profile; with ``--dry-run`` say what would be made."""
    memory = sorted(set(given.memory or MEMORY_MB))
    asked = deployment_request.DeploymentRequest(memory, given.redis, given.insecure, given.redis_for_functions)
    account = open_account(given.region)
    print(f"account {account.number}, {account.region}, {account.name}")
    completed = asked.completed(account)
    if asked.redis is None and completed.redis is not None:
        print(f"redis: {mask_url(completed.redis)}, as before; --redis {deployment_request.NO_REDIS} leaves it out")
    concurrency = deployment_request.check(account, completed)
    print(f"{concurrency} functions at once: up to {count(concurrency - 1, 'worker')}")
    found = removing.inventory(account)
    with tempfile.TemporaryDirectory(prefix="mlless-nb-") as name:
        print("building the layer")
        folder = Path(name)
        built = runtime.build(folder, given.wheel, given.wheels)
        for sentence, is_there in deploying.steps(account, completed, built, found):
            print(f"{'there' if is_there else 'new  '} {sentence}")
        if given.dry_run:
            print("dry run: nothing was made")
            return 0
        deploying.deploy(account, completed, built, found, concurrency, folder, print)
    print('ready: backend="aws_lambda" runs there. Nothing costs while no run is on, but what the bucket holds.')
    if completed.redis is None:
        print('it has no Redis: jobs need store="storage", which keeps updates in the bucket, or a redis of their own')
    print("mlless-nb doctor checks it, mlless-nb remove aws removes it.")
    return 0


def remove(given: argparse.Namespace) -> int:
    """``remove aws``: everything of ours in the account and region, models and data of runs with it."""
    account = open_account(given.region)
    found = removing.inventory(account)
    for sentence in found.lines():
        print(sentence)
    if found.is_empty:
        print(f"account {account.number} has nothing of mlless_nb in {account.region}")
    if given.dry_run:
        print("dry run: nothing was removed")
        return 0
    if not (given.yes or found.is_empty) and not _agreed(account.region):
        print("nothing was removed")
        return 1
    removing.remove(account, found, print)
    return 0


def _agreed(region: str) -> bool:
    if not sys.stdin.isatty():
        print("models and data in the bucket go with it: --yes removes without asking", file=sys.stderr)
        return False
    return (
        input(f"Remove all of it from {region}, with all models and data in the bucket? [y/N] ").strip().lower() == "y"
    )


def examine(given: argparse.Namespace) -> int:
    """``doctor``: a line for each check; status 1 if one fails."""
    findings = doctor.examine(given.insecure)
    for finding in findings:
        print(finding)
    return int(not all(finding.is_good for finding in findings))


def verify(given: argparse.Namespace) -> int:
    """``verify aws``: one small run there, for a cent at most, and its report; status 1 if it does not end well."""
    findings = doctor.examine(given.insecure)
    if bad := [finding for finding in findings if not finding.is_good]:
        print("\n".join(map(str, bad)), file=sys.stderr)
        return 1
    memory_mb = given.memory or min(deployed.find("aws_lambda").memory_mb)  # type: ignore[union-attr]
    report = verifying.verify("aws_lambda", memory_mb=memory_mb)
    verifying.write(report, given.report)
    there, is_good = report["there"], bool(report["is_good"])
    print(
        f"{there['status']} after {count(there['steps'], 'step')}, {there['whole_s']} s, "
        f"${sum(there['cost_usd'].values()):.6f}"
    )
    print(
        "the model is this machine's" if report["is_same_model"] else "the model is not this machine's, to the last bit"
    )
    print(there["reason"], end="\n" if there["reason"] else "")
    print(f"wrote {given.report}")
    return int(not is_good)


def policy(given: argparse.Namespace) -> int:
    """``policy aws``: what the user must be allowed, as a policy of IAM."""
    print(json.dumps(user_policy(partition=partition_of(given.region)), indent=2))
    return 0


def build_image(given: argparse.Namespace) -> int:
    """``runtime build k8s``: the functions' image as a file, and how Lithops is told of it."""
    with tempfile.TemporaryDirectory(prefix="mlless-nb-") as name:
        image = container.build(Path(name), given.image, given.output, given.wheel, given.wheels)
    sizes = f"{image.unzipped_bytes / 1e6:.0f} MB, {image.zipped_bytes / 1e6:.0f} MB zipped"
    print(f"wrote {image.archive}: {sizes}, {image.digest}")
    print(f"push it:    skopeo copy oci-archive:{image.archive} docker://{image.name}")
    print("then, in Lithops' configuration, beside its storage:")
    print(f"lithops:\n  backend: k8s\nk8s:\n  docker_server: {image.name.partition('/')[0]}\n  runtime: {image.name}")
    print("mlless-nb runtime check looks at it, and at the cluster.")
    return 0


def check_containers(given: argparse.Namespace) -> int:
    """``runtime check``: a line for each check; status 1 if one fails."""
    findings = container_check.examine(given.config)
    for finding in findings:
        print(finding)
    return int(not all(finding.is_good for finding in findings))


def parser(first: Mapping[str, str] = MappingProxyType({})) -> argparse.ArgumentParser:
    """The command line's parser; ``first``: what is carried out elsewhere, and its help, listed before the others."""
    whole = argparse.ArgumentParser(
        "mlless-nb", description="Trains from a terminal; deploys mlless_nb to a cloud, checks it, removes it again."
    )
    subcommands = whole.add_subparsers(
        required=True, metavar="train | stop | runs | spend | policy | deploy | doctor | verify | remove | runtime"
    )

    for name, text in first.items():
        subcommands.add_parser(name, help=text)

    def subcommand(name: str, act: object, text: str, has_cloud: bool = True) -> argparse.ArgumentParser:
        made = subcommands.add_parser(name, help=text, description=text)
        made.set_defaults(act=act)
        if has_cloud:
            made.add_argument("cloud", choices=["aws"])
        return made

    made = subcommand("policy", policy, "print the permissions that a user needs")
    made.add_argument("--region", default="", help="for regions in China and of the US government, e.g. cn-north-1")
    made = subcommand("deploy", deploy, "make what runs need, and a profile that backend='aws_lambda' uses")
    made.add_argument("--region", help="the region of AWS; default: the one that boto3 finds")
    made.add_argument("--memory", type=int, action="append", metavar="MB", help="of a function; again for more sizes")
    made.add_argument("--redis", metavar="URL", help="the Redis of jobs that name none; default: as before")
    made.add_argument(
        "--redis-for-functions", metavar="URL", help="how functions reach it, if from here it is a tunnel"
    )
    made.add_argument("--insecure", action="store_true", help="accept a Redis without TLS or password")
    made.add_argument("--wheel", type=Path, metavar="FILE", help="a wheel of mlless_nb for Linux on x86-64")
    made.add_argument("--wheels", type=Path, metavar="FOLDER", help="the other packages' wheels, instead of the index")
    made.add_argument("--dry-run", action="store_true", help="check and build, say what would be made, make nothing")
    made = subcommand("doctor", examine, "check the deployment, a line for each check", has_cloud=False)
    made.add_argument("--insecure", action="store_true", help="accept a Redis without TLS or password")
    made = subcommand("verify", verify, "one small run there, for a cent at most, and a report of it")
    made.add_argument(
        "--memory", type=int, metavar="MB", help="of the functions; default: the smallest that is deployed"
    )
    made.add_argument("--insecure", action="store_true", help="accept a Redis without TLS or password")
    made.add_argument(
        "--report", type=Path, default=Path("mlless-nb-report.json"), metavar="FILE", help="default: %(default)s"
    )
    made = subcommand("remove", remove, "remove everything of ours from an account and region")
    made.add_argument("--region", help="the region of AWS; default: the one that boto3 finds")
    made.add_argument("--dry-run", action="store_true", help="say what would be removed")
    made.add_argument("--yes", action="store_true", help="do not ask")
    text = "the functions' image for Kubernetes: built without Docker, and checked with its configuration"
    runtimes = subcommands.add_parser("runtime", help=text, description=text).add_subparsers(required=True)
    made = runtimes.add_parser("build", help="write the image as a file")
    made.set_defaults(act=build_image)
    made.add_argument("cloud", choices=["k8s"])
    made.add_argument("--image", required=True, metavar="NAME", help="such as registry.example/mlless; gets a tag")
    made.add_argument(
        "--output", type=Path, default=Path("mlless-runtime.tar"), metavar="FILE", help="default: %(default)s"
    )
    made.add_argument("--wheel", type=Path, metavar="FILE", help="a wheel of mlless_nb for Linux on x86-64")
    made.add_argument("--wheels", type=Path, metavar="FOLDER", help="the other packages' wheels, instead of the index")
    made = runtimes.add_parser("check", help="check Lithops' configuration for containers, a line for each check")
    made.set_defaults(act=check_containers)
    made.add_argument("--config", type=Path, metavar="FILE", help="default: where Lithops looks for it")
    return whole
