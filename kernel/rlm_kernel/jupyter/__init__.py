"""The connections to Jupyter: the provisioner, kernelspecs, the bridge of a front end, the sanitizer of displays."""
