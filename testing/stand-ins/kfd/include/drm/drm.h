/* Stands in for the kernel's drm.h, which Debian ships in another place (libdrm-dev): all that kfd_ioctl.h needs of it. */
#include <asm/ioctl.h>
#include <linux/types.h>
