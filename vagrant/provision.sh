#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the packages that the emulation needs on Ubuntu 24.04 or Debian 12: those of the
# distribution, then BMv2 and p4c from p4lang's apt repository. Run it as root; it can be repeated.
# If that repository has no package for this system or cannot be reached, the script prints one
# line; the soft switch can then be used instead of BMv2.
#
#   provision.sh [--need-bmv2] [--vm]
#
# With --need-bmv2, it is an error if BMv2 or p4c cannot be installed. With --vm, all users of this
# machine may make user namespaces, in which networks of real packets need no root: Ubuntu 24.04
# forbids it otherwise.
#
# The repository is the openSUSE Build Service's project home:p4lang, as in the README files of
#   https://github.com/p4lang/behavioral-model#installing-packaged-versions-of-bmv2
#   https://github.com/p4lang/p4c#installing-packaged-versions-of-p4c
# and home:p4lang:latest, where packages of new releases were staged:
#   https://github.com/p4lang/tutorials/issues/753
set -euo pipefail

USERNS=kernel/apparmor_restrict_unprivileged_userns

PACKAGES=(
  python3 python3-venv make gcc libc6-dev                   # make scenario
  mininet iperf3 ethtool iproute2 nftables tcpdump          # the emulated network
  iputils-ping kmod procps rsync
  python3-thrift                                            # BMv2's register calls and its CLI
  ca-certificates curl gnupg                                # p4lang's repository
)
P4LANG_URL=${P4LANG_URL:-https://download.opensuse.org/repositories}  # or a mirror of it
P4LANG_PROJECTS=(home:p4lang home:p4lang:latest)
P4LANG_PACKAGES=(p4lang-bmv2 p4lang-p4c)
LIST=/etc/apt/sources.list.d/p4lang.list
KEYRING=/etc/apt/keyrings/p4lang.gpg

export DEBIAN_FRONTEND=noninteractive

say() { echo "provision: $*"; }

apt() { apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@"; }

# Succeed if BMv2 and p4c can be run.
have_p4lang() { command -v simple_switch_grpc && command -v p4c; } >/dev/null

# Install the netem queueing discipline, which Ubuntu's cloud kernels have in a separate package.
install_netem() {
  local extra
  extra="linux-modules-extra-$(uname -r)"
  if modinfo sch_netem >/dev/null 2>&1; then return; fi
  if [[ -z $(apt-cache search --names-only "^$extra\$") ]] || ! apt install "$extra" >/dev/null; then
    say "this kernel has no sch_netem: use INJECTOR=p4 or nft"
  fi
}

# Print the build service's name for this system, such as xUbuntu_24.04 or Debian_12.
repository_name() {
  # shellcheck source=/dev/null
  . /etc/os-release
  case $ID in
    ubuntu) echo "xUbuntu_$VERSION_ID" ;;
    debian) echo "Debian_$VERSION_ID" ;;
    *) echo "${ID}_${VERSION_ID:-}" ;;
  esac
}

download() { curl -fsSL --connect-timeout 10 --max-time 60 --retry 2 "$1" -o "$2"; }

# Add the repository at URL $1 and install BMv2 and p4c from it; remove it again if that fails.
install_from() {
  local key
  key=$(mktemp)
  install -d -m 0755 "${KEYRING%/*}"
  if download "$1/Release.key" "$key" && gpg --batch --yes --dearmor -o "$KEYRING" "$key"; then
    echo "deb [signed-by=$KEYRING] $1/ /" >"$LIST"
    # Update the list of this repository only; those of the distribution are up to date.
    if apt update -o Dir::Etc::sourcelist="$LIST" -o Dir::Etc::sourceparts=- \
        -o APT::Get::List-Cleanup=0 -o APT::Update::Error-Mode=any >/dev/null \
      && apt install --no-install-recommends "${P4LANG_PACKAGES[@]}" >/dev/null; then
      rm -f "$key"
      return 0
    fi
  fi
  rm -f "$key" "$LIST" "$KEYRING"
  return 1
}

# Install BMv2 and p4c; on failure print the reason on standard output.
install_p4lang() {
  local name project url errors reason
  name=$(repository_name)
  errors=$(mktemp)
  reason=
  for project in "${P4LANG_PROJECTS[@]}"; do
    url="$P4LANG_URL/${project//:/:/}/$name"
    if install_from "$url" 2>"$errors"; then
      rm -f "$errors"
      return 0
    fi
    reason+="${reason:+; }$project/$name: $(grep -v '^W:' "$errors" | tail -n 1)"
  done
  rm -f "$errors"
  echo "$reason"
  return 1
}

main() {
  local need=no vm=no reason option
  for option in "$@"; do
    case $option in
      --need-bmv2) need=yes ;;
      --vm) vm=yes ;;
      *) say "usage: provision.sh [--need-bmv2] [--vm]" >&2; exit 2 ;;
    esac
  done
  [[ $EUID -eq 0 ]] || { say "run this as root: sudo $0 $*" >&2; exit 2; }

  if [[ $vm == yes && -e /proc/sys/$USERNS ]]; then
    echo "${USERNS//\//.}=0" >/etc/sysctl.d/60-canary.conf
    echo 0 >"/proc/sys/$USERNS"
  fi

  say "installing the distribution's packages"
  rm -f "$LIST" # of an earlier call; if it failed now, the distribution's packages would fail, too
  apt update
  apt install --no-install-recommends "${PACKAGES[@]}" >/dev/null
  install_netem

  if have_p4lang && ! dpkg -s "${P4LANG_PACKAGES[@]}" >/dev/null 2>&1; then
    say "BMv2 and p4c are here already, and not from p4lang's packages: left alone"
  elif reason=$(install_p4lang); then
    say "installed $(dpkg-query -W -f '${Package} ${Version}; ' "${P4LANG_PACKAGES[@]}")"
  elif have_p4lang; then
    say "BMv2 and p4c stay as they were ($reason)"
  else
    say "no BMv2 and p4c from p4lang's repository, use BACKEND=softswitch ($reason)"
    [[ $need == no ]] || exit 1
  fi
}

main "$@"
