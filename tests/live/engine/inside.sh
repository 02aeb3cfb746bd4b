#!/usr/bin/env bash
# Process 1 of the namespaces in which a test's dockerd lives. Ends when its stdin does, and with it
# everything in there. $1 is the folder with passwd, group and subid, which are shown only in here.
set -eu
ip link set lo up
touch /etc/subuid /etc/subgid
mount --bind "$1/passwd" /etc/passwd
mount --bind "$1/group" /etc/group
mount --bind "$1/subid" /etc/subuid
mount --bind "$1/subid" /etc/subgid
echo ready
# Reaps what is orphaned in here, and waits.
read -r _ || true
