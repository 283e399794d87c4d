"""``sparse-secagg serve`` and ``join``: a round between real parties; a client's ``budget``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.cli import options as opt
from sparse_secagg.privacy.conversion import stated

RosterFile = Annotated[
    Path, opt.about("Roster of who takes part, from somebody whom the clients trust.")
]
_LIMITS, _CONNECTION = "Limits", "Connection"


def _number(text: str, group: str = "") -> Any:
    return opt.about(text, group, parser=opt.number, metavar="X")


def _port(text: str | int) -> int:
    if not 0 <= opt.whole(text) < 1 << 16:
        raise typer.BadParameter(f"{text} must be a port, from 0 to {(1 << 16) - 1}.")
    return opt.whole(text)


def _seconds(text: str | float) -> float:
    if not opt.number(text) > 0:
        raise typer.BadParameter(f"{text} must be above 0.")
    return opt.number(text)


def _fraction(text: str) -> Any:
    return opt.about(text, _LIMITS, parser=opt.fraction, metavar="X")


Seconds = Annotated[
    float,
    opt.about("Seconds to wait for the other side.", _CONNECTION, parser=_seconds, metavar="X"),
]


def serve(
    spec: Annotated[
        Path,
        opt.about(
            'JSON file of the round: {"dim": 1000, "epsilon": 1.0, …}, and other parameters of a '
            "round by their names in Python.",
            names=("--round",),
        ),
    ],
    roster: RosterFile,
    certificate: Annotated[
        Path, opt.about("TLS certificate that clients know; made where there is none.", _CONNECTION)
    ] = Path("server.pem"),
    key: Annotated[Path, opt.about("Key of the certificate.", _CONNECTION)] = Path("server.key"),
    host: Annotated[str, opt.about("Address to listen at.", _CONNECTION)] = "127.0.0.1",
    port: Annotated[
        int,
        opt.about("Port to listen at; 0 takes a free one.", _CONNECTION, parser=_port, metavar="N"),
    ] = 8443,
    name: Annotated[
        str | None,
        opt.about(
            "Name or address that clients use, for a new certificate.", _CONNECTION, "--host"
        ),
    ] = None,
    seconds: Seconds = 60.0,
    corrupt: Annotated[
        float, _fraction("Fraction of the clients that may help the server.")
    ] = 0.05,
    dropout: Annotated[float, _fraction("Fraction of the clients that may drop out.")] = 0.05,
    output: Annotated[Path, opt.about("File for the estimated mean.", opt.RUNNING)] = Path(
        "mean.npy"
    ),
    as_json: opt.AsJson = False,
) -> None:
    """Run one round with everybody on a roster, and write the estimated mean."""
    import numpy as np

    from sparse_secagg import Roster, RoundConfig, ServerSession, announce_round, server_decode
    from sparse_secagg.private_files import check_file
    from sparse_secagg.secagg import BelowThresholdError, InvalidMessageError
    from sparse_secagg.transport import make_certificate, serve_round, server_context

    group = Roster.load(roster)
    round_spec, dim = _read_spec(spec)
    document = announce_round(round_spec, dim, group, corrupt=corrupt, dropout=dropout)
    check_file(output)  # a mean that cannot be kept would cost everybody a round
    if not certificate.exists():
        make_certificate(certificate, key, _reachable(name or host))
    context = server_context(certificate, key)

    def show(text: str) -> None:
        typer.echo(text, err=as_json)

    session = ServerSession(document, roster=group)
    try:
        total = serve_round(
            session,
            context,
            host,
            port,
            seconds=seconds,
            on_ready=lambda port: show(f"listening at {host}:{port}"),
            on_stage=lambda stage, left: show(f"{stage}: {left} clients"),
        )
    except OSError as error:
        raise typer.BadParameter(
            f"--host {host} --port {port}: nothing can listen there ({error.strerror}); choose "
            "another address or port."
        ) from None
    except (BelowThresholdError, InvalidMessageError) as error:
        typer.echo(f"the round failed: {error}", err=True)
        raise typer.Exit(1) from None
    config = RoundConfig.from_json(document.context)
    estimate = server_decode(config, total, session.survivors.tolist(), round_spec.decoder)
    np.save(output, estimate.mean)
    values = {
        "survivors": session.survivors.tolist(),
        "epsilon": estimate.privacy.epsilon(),
        "delta": config.delta,
        "output": str(output),
    }
    typer.echo(json.dumps(values) if as_json else _sentence(values))


def join(
    server: Annotated[str, opt.about("Address of the server.", metavar="HOST:PORT")],
    identity: Annotated[Path, opt.about("File of the client's identity.")],
    roster: RosterFile,
    vector: Annotated[Path, opt.about("File of the client's vector, .npy.")],
    budget: Annotated[Path, opt.about("File of the client's lifetime budget.")],
    max_epsilon: Annotated[float, _number("Largest ε of a round to agree to.")],
    max_delta: Annotated[float, _number("Largest δ of a round to agree to.", _LIMITS)] = 1e-5,
    corrupt: Annotated[
        float, _fraction("Fraction of the clients that may help the server.")
    ] = 0.05,
    certificate: Annotated[
        Path | None, opt.about("The server's certificate.", _CONNECTION, "known authorities")
    ] = None,
    state: Annotated[
        Path | None,
        opt.about("File to go on from after an interruption.", opt.RUNNING, "beside --identity"),
    ] = None,
    seconds: Seconds = 600.0,
) -> None:
    """Take part in a round as one client, within its own limits and budget."""
    from sparse_secagg import AgentPolicy, Budget, ClientAgent, Identity, Roster
    from sparse_secagg.exceptions import RefusedRoundError
    from sparse_secagg.private_files import check_file
    from sparse_secagg.transport import client_context, join_round

    host, port = _address(server)
    x = _read_vector(vector)
    policy = AgentPolicy(max_epsilon, max_delta, colluders=corrupt, dim=x.size)
    if not budget.exists():
        raise typer.BadParameter(f"--budget {budget}: there is no budget; {_how_to_make(budget)}.")
    state = identity.with_suffix(".round") if state is None else state
    check_file(state)  # what has been sent must be known after an interruption
    agent = ClientAgent(policy, Budget(budget))
    me, group, context = (Identity.load(identity), Roster.load(roster), client_context(certificate))
    try:
        join_round(
            (host, port),
            x,
            identity=me,
            roster=group,
            agent=agent,
            state=state,
            context=context,
            seconds=seconds,
            on_stage=lambda stage: typer.echo(stage),
        )
    except RefusedRoundError as error:
        typer.echo(f"refused: {error}", err=True)
        raise typer.Exit(1) from None
    left = agent.budget.left
    typer.echo(f"done: epsilon {left:.4g} of {agent.budget.epsilon:.4g} left in this life")


def _read_spec(path: Path) -> tuple[Any, int]:
    """Return a round's spec and the length of its vectors, from a file."""
    from sparse_secagg import RoundSpec

    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"round='{path}' is not JSON in UTF-8; save it as that.") from None
    except ValueError as error:
        raise ValueError(f"round='{path}' is not JSON: {error}.") from None
    if not isinstance(values, dict) or type(values.get("dim")) is not int:
        raise ValueError(f"round='{path}' must be a JSON object with \"dim\", the vectors' length.")
    try:
        spec = RoundSpec.from_dict({k: v for k, v in values.items() if k != "dim"})
    except ValueError as error:
        raise ValueError(f"round='{path}': {error}") from error
    return spec, values["dim"]


def _read_vector(path: Path) -> Any:
    """Return a client's vector, from a file."""
    import numpy as np

    try:
        x = np.load(path, allow_pickle=False)
    except (ValueError, EOFError):
        x = None
    if not isinstance(x, np.ndarray) or x.ndim != 1 or not x.size or x.dtype.kind not in "biuf":
        raise ValueError(
            f"vector='{path}' must be a .npy file of one vector of numbers, as np.save writes it."
        )
    if not np.isfinite(x).all():
        raise ValueError(f"vector='{path}' must hold finite numbers; some are NaN or infinite.")
    return x


def _how_to_make(budget: Path) -> str:
    return f"'sparse-secagg budget {budget} --epsilon 8 --delta 1e-5' makes one for a lifetime"


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"server={text!r} must be HOST:PORT, such as 127.0.0.1:8443.")
    return host, int(port)


def _reachable(name: str) -> str:
    """Return a name to put into a certificate, or raise if no client could connect to it."""
    if name in ("0.0.0.0", "::", "*"):
        raise ValueError(
            f"--host {name} is every address of this machine; say by --name which of them, or "
            "which name, clients use: the certificate is made for it."
        )
    return name


def _sentence(values: dict[str, Any]) -> str:
    return (
        f"{len(values['survivors'])} survivors: epsilon {stated(values['epsilon'])} at delta "
        f"{stated(values['delta'], 3)}; written: {values['output']}"
    )


def budget(
    path: Annotated[Path, typer.Argument(help="The client's budget, a SQLite file.")],
    epsilon: Annotated[float | None, _number("ε of a lifetime, to make a new budget.")] = None,
    delta: Annotated[float | None, _number("δ of a lifetime, to make a new budget.")] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Show what a client has spent of its lifetime budget; with --epsilon and --delta, make one."""
    from sparse_secagg import Budget

    if not path.exists() and (epsilon is None or delta is None):
        raise typer.BadParameter(f"path {path}: there is no budget; {_how_to_make(path)}.")
    account = Budget(path, epsilon, delta)
    if as_json:
        names = ("epsilon", "delta", "rounds", "spent", "left")
        typer.echo(json.dumps({name: getattr(account, name) for name in names}))
        return
    typer.echo(
        f"{account.rounds} rounds: epsilon {stated(account.spent)} of {account.epsilon:.4g} spent, "
        f"{account.left:.4g} left (delta {account.delta:.3g})"
    )
