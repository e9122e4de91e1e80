# SPDX-License-Identifier: BSD-2-Clause
# Sourced by the first process of a guest: runs the commands that come over the serial line @serial, in
# this shell's functions, until it is closed.
#
#     in:  a command a line
#     out: \036ready at the start; then for each command its output, \036 and its exit status
exec 3<>"$serial"
stty raw -echo <&3
printf '\036ready\n' >&3
while IFS= read -r line <&3; do
	(eval "$line") </dev/null >&3 2>&1 3>&-
	printf '\036%d\n' $? >&3
done
