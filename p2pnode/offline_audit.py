"""The walk of a ledger whose node is down. SPEC.md section 7."""

from contextlib import closing

from ledger.audit import begin_audit
from ledger.leveldb_store import open_leveldb
from ledger.records import Records, check_stamp
from p2pnode.api.ledger_documents import VerifyDocument
from p2pnode.home import Home, locked
from p2pnode.ledger_views import verify_document
from p2pnode.membership import genesis_of
from p2pnode.own_store import check_current
from protocol.errors import LocalFault
from protocol.genesis import net_of


def audit_offline(home: Home) -> VerifyDocument:
    """All that the home's ledger holds, judged anew.

    Raises LocalFault if a node runs on the home, or there is no ledger that can be opened.
    """
    net = net_of(genesis_of(home))
    check_current(home.ledger)
    if not (home.ledger / "CURRENT").exists():
        raise LocalFault(f"there is no ledger in {home.ledger} yet.", "p2pnode up makes one")
    with locked(home), closing(open_leveldb(str(home.ledger))) as store:
        check_stamp(store, net=net, uuid=bytes(16))
        return verify_document(begin_audit(Records(store=store, net=net))(lambda: None))
