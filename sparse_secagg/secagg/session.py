"""Sessions: a round between parties that exchange bytes, and what a client checks by itself.

The flow, where the server may lie (``security="malicious"``); each line is one message:

    server → all   RoundDocument     JSON: configuration, sizes, thresholds, roster, graph
    client → srv   AdvertiseKeys     mask key, cipher key, H(b_i); every client message is signed
    server → i     PeerKeys          root of all keys; neighbours' keys with signatures and a proof
    client → srv   ShareKeys         shares of b_i and of the mask secret, sealed for each neighbour
    server → i     ForwardedShares   what the neighbours sealed for i
    client → srv   MaskedInput       y_i = x_i + PRG(b_i) ± Σ PRG(s_ij)
    server → i     SurvivorList      one bit for each client of the round
    client → srv   Confirmation      a tag over that list for each neighbour on it
    server → i     Confirmations     the neighbours' tags for i
    client → srv   UnmaskShares      one share of each neighbour: of b_j if listed, else of its key

With ``security="semi_honest"`` there are no signatures, root or confirmations; shares follow the
list at once.

Keys. With D the SHA-256 of the document, R the root of the hash tree over what clients advertised
and G the graph (drawn from SHA-256(D ‖ R) if it is regular),

    digest    = SHA-256(D ‖ R ‖ G)
    PRG(b_i)  : key HKDF(b_i;               "self mask" ‖ digest ‖ i ‖ i)
    PRG(s_ij) : key HKDF(X25519(mask keys); "pair mask" ‖ digest ‖ i ‖ j),   i < j
    sealing and confirming, each way:
                HKDF(X25519(cipher keys) ‖ X25519(identities); "share" ‖ digest ‖ i ‖ j)
    signature : Ed25519 over digest ‖ message (D in place of the digest for AdvertiseKeys)

What a client checks before it answers, and what that prevents:

 1. the document parses, within 1 MB, every field in its range ......... crashes, huge allocations
 2. its roster is the one the client knows, and holds it ............... strangers, invented clients
 3. masks are not "seeded", t is a quorum (:mod:`quorums`) ............. secrets given away
 4. the agent agrees: ε, δ, adjacency, mechanism, cohort, budget ....... rounds that cost too much
 5. the keys of the neighbourhood, and who is absent, are in the root .. other keys for others, a
    graph of the server's choice
 6. identities are in the keys of pairs; keys of a neighbour whose share
    does not open are signed for this document by their owner .......... keys of the server's making
 7. all keys differ, none is of low order .............................. masks that cancel by design
 8. t members advertised, and t sent shares that open .................. "nobody shared"
 9. shares come only from clients with keys ............................ members made up later
10. the list has the client itself and only clients that shared ........ U₃ ⊄ U₂
11. the list has ``threshold`` clients, and t of the neighbourhood ..... a sum of few
12. every client on the list has t of its neighbourhood on it .......... a client, or an arc of the
    circle, cut out by declaring those around it dropped
13. t of the neighbourhood confirmed the same list ..................... split survivor lists
14. the vector has the round's length and modulus ...................... masks shorter than vectors
15. messages have the kind, view, client and length expected ........... replays, other rounds
16. each message is answered once, and none after a refusal ............ both kinds of shares

A share that opens, like a confirmation, was made under a key that takes the secret of one of the
two identities: it convinces the one it is for, which is all that checks 6 and 13 need. Agreeing
costs half as much as verifying a signature. docs/secagg.md says what follows from the checks, and
against whom.
"""

from __future__ import annotations

from sparse_secagg.secagg.client import ClientSession, Gatekeeper
from sparse_secagg.secagg.server import ServerSession
from sparse_secagg.secagg.setup import RoundDocument

__all__ = ["ClientSession", "Gatekeeper", "RoundDocument", "ServerSession"]
