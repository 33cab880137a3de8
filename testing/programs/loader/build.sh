#!/bin/sh
# Builds what the loader tests run, into the folder named: build.sh FOLDER
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$1"
cc() { gcc -g -O1 -Wall -Wextra -Werror "$@"; }
lib() { cc -shared -fPIC "$@"; }

for n in 1 2 3 4 5 6 7 8 9; do
    case $n in *[13579]) name=libOpenCL.so.1 soname=libOpenCL.so.1 ;; *) name=libOpenCL-abc$n.so soname=$name ;; esac
    [ "$n" = 3 ] && soname=libOpenCL-3.so
    mkdir -p "copy$n"
    lib -DCOPY="$n" -Wl,-soname,"$soname" -o "copy$n/$name" "$here/fakecl.c"
    [ "$soname" = "$name" ] || ln -s "$name" "copy$n/$soname"
done
mkdir -p versioned
echo 'OPENCL_1.0 { global: cl*; local: *; };' >versioned/map
lib -DCOPY=10 -Wl,-soname,libOpenCL.so.1 -Wl,--version-script=versioned/map -o versioned/libOpenCL.so.1 "$here/fakecl.c"

# Modules with a bundled copy each; lazily bound unless they are opened otherwise.
plugin() { lib -o "$1" "$here/plugin.c" "$2" -Wl,-z,lazy,-rpath,"$PWD/$(dirname "$2")"; }
plugin plugin1.so copy1/libOpenCL.so.1
plugin plugin2.so copy2/libOpenCL-abc2.so
plugin plugin3.so copy3/libOpenCL.so.1
lib -o unlinked.so "$here/plugin.c"
echo 'int nothing_at_all;' | lib -x c -o plugin_nothing.so -

# Seven modules deep; in the second chain the third module brings another copy.
empty() {
    out=$1
    shift
    echo 'typedef int empty;' | lib -Wl,--no-as-needed,-rpath,"$PWD:$PWD/copy1" -x c -o "$out" - -x none "$@"
}
plugin chain7.so copy2/libOpenCL-abc2.so
for n in 6 5 4 3 2 1; do empty "chain$n.so" -L. "-l:chain$((n + 1)).so"; done
empty both3.so -L. -l:chain4.so copy1/libOpenCL.so.1
empty both2.so -L. -l:both3.so
empty both1.so -L. -l:both2.so

lib -o interposer.so "$here/interposer.c"
lib -o early.so "$here/early.c" copy1/libOpenCL.so.1 -Wl,-rpath,"$PWD/copy1"
cc -o main "$here/main.c"
cc -DLINKED -o linked "$here/main.c" -L. -l:early.so copy1/libOpenCL.so.1 -Wl,-rpath,"$PWD:$PWD/copy1"
g++ -g -O1 -Wall -Wextra -o throws "$here/throws.cpp" copy1/libOpenCL.so.1 -Wl,-rpath,"$PWD/copy1"

# HIP: a copy where the loader looks by itself, and one that a framework brings, found by its RPATH; versions as ROCm's.
mkdir -p hip1 hip2
cat >hip.map <<'MAP'
hip_4.2 { global: hip*; __hip*; _Z*; local: *; };
hip_5.2 { global: hipLaunchKernel_spt; hipStreamSynchronize_spt; } hip_4.2;
hip_6.1 { global: hipGetProcAddress; } hip_5.2;
MAP
runtime() { lib -pthread -DCOPY="$1" -Wl,-soname,"$3",--version-script=hip.map -o "hip$1/$2" "$here/fakehip.c"; }
runtime 1 libamdhip64.so.5 libamdhip64.so.5
runtime 2 libamdhip64.so libamdhip64.so
lib -o hip_default.so "$here/hipplugin.c" hip1/libamdhip64.so.5
lib -o hip_bundled.so "$here/hipplugin.c" hip2/libamdhip64.so -Wl,--disable-new-dtags,-rpath,'$ORIGIN/hip2'
cc -pthread -o hip_main "$here/hipmain.c"
cc -pthread -DLINKED -o hip_linked "$here/hipmain.c" "$here/hipplugin.c" hip1/libamdhip64.so.5
