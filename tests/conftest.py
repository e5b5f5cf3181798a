pytest_plugins = ["pytester", "tests.proves", "tests.ground.stores", "tests.ground.opened"]
