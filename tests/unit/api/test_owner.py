"""Owners of what outlives a run."""

from mcp_exec_api.files import Owner

TEAM = Owner(namespace="agents", caller="team-a")
ACCOUNT = Owner(namespace="agents", caller="k8s/ann@example.com")


def test_owners_differ_in_namespace_caller_and_user() -> None:
    others = [
        Owner(namespace="other", caller="team-a"),
        Owner(namespace="agents", caller="team-b"),
        Owner(namespace="agents", caller="team-a", user="ann"),
        Owner(namespace="agents"),
        Owner(namespace="agents", user="team-a"),
        Owner(namespace='agents","team-a', caller=""),
    ]
    assert len({owner.digest for owner in (TEAM, *others)}) == 1 + len(others)
    assert len({owner.qualify("notes") for owner in (TEAM, *others[1:5])}) == 5


def test_nobody_is_not_the_same_as_nobody() -> None:
    nobody = Owner(namespace="agents", user="ann")
    assert TEAM.same_as(Owner(namespace="agents", caller="team-a"))
    assert not nobody.same_as(Owner(namespace="agents", user="ann"))
    assert not TEAM.same_as(Owner(namespace="agents", caller="team-a", user="ann"))
    assert (nobody.is_nobody, TEAM.is_nobody) == (True, False)


def test_a_name_of_the_kubernetes_api_is_the_objects_name() -> None:
    assert ACCOUNT.qualify("notes") == "notes"
    assert TEAM.qualify("notes") == f"notes-{TEAM.digest[:12]}"


def test_nobody_takes_the_name_of_another_owners_session_before_it_exists() -> None:
    assert not ACCOUNT.may_name(TEAM.qualify("notes"))
    assert TEAM.may_name(ACCOUNT.qualify("notes"))
    assert ACCOUNT.may_name("notes-2026")
